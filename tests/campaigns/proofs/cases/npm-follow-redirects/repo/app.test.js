const assert = require('node:assert');
const http = require('node:http');
const test = require('node:test');
const { download } = require('./app');

test('a file is read with the cookie', async () => {
  const server = http.createServer((request, response) => response.end(request.headers.cookie));
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const text = await download(`http://127.0.0.1:${server.address().port}/`, 'id=7');
  server.close();
  assert.strictEqual(text, 'id=7');
});

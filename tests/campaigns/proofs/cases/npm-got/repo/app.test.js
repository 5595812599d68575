const assert = require('node:assert');
const http = require('node:http');
const test = require('node:test');
const { state } = require('./app');

test('a state is read', async () => {
  const server = http.createServer((request, response) => response.end('{"state": "up"}'));
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const read = await state(`http://127.0.0.1:${server.address().port}/`).finally(() => server.close());
  assert.strictEqual(read, 'up');
});

test('a service that does not answer is down', async () => {
  assert.strictEqual(await state('http://127.0.0.1:9/'), 'down');
});

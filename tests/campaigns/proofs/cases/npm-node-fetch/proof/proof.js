// GHSA-r683-j2x4-v87g: a redirect to another host takes the cookie with it.
const assert = require('node:assert');
const http = require('node:http');
const { feed } = require('../app');

const server = http.createServer((request, response) => {
  const { port } = server.address();
  if (request.headers.host === `127.0.0.1:${port}`) {
    response.writeHead(302, { location: `http://127.0.0.2:${port}/` }).end();
  } else {
    response.end(`seen: ${request.headers.cookie}`);
  }
});
server.listen(0, '0.0.0.0', async () => {
  const text = await feed(`http://127.0.0.1:${server.address().port}/`, 'id=7');
  server.close();
  assert.strictEqual(text, 'seen: undefined');
});

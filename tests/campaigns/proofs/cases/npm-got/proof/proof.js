// GHSA-pfrx-2q88-qq97: a service redirects got to a UNIX socket of this machine.
const assert = require('node:assert');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { state } = require('../app');

const socket = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'proof-')), 's');
let reached = false;
const local = http.createServer((request, response) => {
  reached = true;
  response.end('{"state": "secret"}');
});
const remote = http.createServer((request, response) => {
  response.writeHead(302, { location: `http://unix:${socket}:/` }).end();
});
local.listen(socket, () => remote.listen(0, '127.0.0.1', async () => {
  await state(`http://127.0.0.1:${remote.address().port}/`)
    .catch((error) => console.log('refused:', error.message));
  local.close();
  remote.close();
  assert.ok(!reached, 'the socket was asked');
}));

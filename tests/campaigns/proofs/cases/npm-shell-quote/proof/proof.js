// GHSA-g4rg-993r-mgx7: [A-z] takes in the back quote, so "`:`…" reaches the shell as a command.
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { say } = require('../app');

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'proof-'));
const mark = path.join(folder, 'injected');
fs.writeFileSync(path.join(folder, 'leave-mark'), `#!/bin/sh\n: > ${mark}\n`, { mode: 0o755 });
process.env.PATH = `${folder}:${process.env.PATH}`;
try {
  say('`:`leave-mark``:`');
} catch (error) {
  console.log('the shell failed:', error.message.split('\n')[0]);
}
assert.ok(!fs.existsSync(mark), 'the word ran as a command');

'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { countLines } = require('..');

const PAYLOADS = [
  'a.txt; touch pwned',
  'a.txt`touch pwned`',
  'a.txt$(touch pwned)',
  'a.txt"; touch pwned; "',
  "a.txt'; touch pwned; '",
  'a.txt\ntouch pwned',
];

for (const payload of PAYLOADS) {
  test(`no shell sees ${JSON.stringify(payload)}`, () => {
    const before = process.cwd();
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'proof-'));
    fs.writeFileSync(path.join(folder, 'a.txt'), 'one\n');
    process.chdir(folder);
    try {
      countLines(payload);
    } catch {
      // There is no such file: throwing is right.
    } finally {
      process.chdir(before);
    }
    assert.ok(!fs.existsSync(path.join(folder, 'pwned')), 'a command in the file name was run');
  });
}

test('a file whose name has a space and quotes is counted', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'proof-'));
  const file = path.join(folder, 'it\'s "here" $HOME.txt');
  fs.writeFileSync(file, 'one\ntwo\n');
  assert.strictEqual(countLines(file), 2);
});

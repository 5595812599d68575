'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { countLines, countAll } = require('..');

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'linecount-'));
const file = path.join(folder, 'notes.txt');
fs.writeFileSync(file, 'one\ntwo\nthree\n');

test('counts the lines of a file', () => {
  assert.strictEqual(countLines(file), 3);
});

test('counts several files', () => {
  assert.deepStrictEqual(countAll([file]), { [file]: 3 });
});

test('throws where there is no such file', () => {
  assert.throws(() => countLines(path.join(folder, 'missing.txt')));
});

'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { locate, read } = require('..');

const root = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'dish-')), 'public');
fs.mkdirSync(path.join(root, 'v1..2'), { recursive: true });
fs.writeFileSync(path.join(root, 'index.html'), 'home');
fs.writeFileSync(path.join(root, 'a b.txt'), 'spaced');
fs.writeFileSync(path.join(root, 'v1..2', 'notes.txt'), 'notes');

test('a folder has an index', () => {
  assert.strictEqual(read(root, '/'), 'home');
});

test('a name is decoded and the query left out', () => {
  assert.strictEqual(read(root, '/a%20b.txt?download=1'), 'spaced');
});

test('a name with two dots inside is a name', () => {
  assert.strictEqual(read(root, '/v1..2/notes.txt'), 'notes');
});

test('what is not there is null', () => {
  assert.strictEqual(locate(root, '/missing.txt'), null);
});

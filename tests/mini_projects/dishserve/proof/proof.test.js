'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { read } = require('..');

const place = fs.mkdtempSync(path.join(os.tmpdir(), 'proof-'));
const root = path.join(place, 'public');
fs.mkdirSync(root);
fs.mkdirSync(path.join(place, 'public-not'));
fs.writeFileSync(path.join(root, 'here.txt'), 'here');
fs.writeFileSync(path.join(place, 'secret.txt'), 'SECRET');
fs.writeFileSync(path.join(place, 'public-not', 'secret.txt'), 'SECRET');

const URLS = [
  '/../secret.txt',
  '/%2e%2e/secret.txt',
  '/..%2fsecret.txt',
  '/x/../../secret.txt',
  '/....//secret.txt',
  '/..././secret.txt',
  '/../public-not/secret.txt',
];

for (const url of URLS) {
  test(`nothing outside the root for ${url}`, () => {
    let content = null;
    try {
      content = read(root, url);
    } catch {
      // Refusing with an error serves nothing either.
    }
    assert.notStrictEqual(content, 'SECRET', 'a file outside the root was read');
  });
}

test('a path that stays inside is served', () => {
  assert.strictEqual(read(root, '/x/../here.txt'), 'here');
});

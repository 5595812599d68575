'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { settle, parseLayer } = require('..');

test('later layers win, deeply', () => {
  const merged = settle({ log: { level: 'info', file: 'a' } }, { log: { level: 'debug' } });
  assert.deepStrictEqual(merged, { log: { level: 'debug', file: 'a' } });
});

test('arrays are replaced whole', () => {
  assert.deepStrictEqual(settle({ tags: [1, 2] }, { tags: [3] }), { tags: [3] });
});

test('layers are left as they were', () => {
  const defaults = { a: { b: 1 } };
  settle(defaults, { a: { b: 2 } });
  assert.deepStrictEqual(defaults, { a: { b: 1 } });
});

test('a layer from text', () => {
  assert.deepStrictEqual(parseLayer('{"a": {"proto": 1}}'), { a: { proto: 1 } });
});

'use strict';

const { afterEach, test } = require('node:test');
const assert = require('node:assert');
const { settle, parseLayer } = require('..');

afterEach(() => {
  delete Object.prototype.polluted;
});

const LAYERS = [
  '{"__proto__": {"polluted": true}}',
  '{"a": {"__proto__": {"polluted": true}}}',
  '{"constructor": {"prototype": {"polluted": true}}}',
  '{"a": {"constructor": {"prototype": {"polluted": true}}}}',
];

for (const text of LAYERS) {
  test(`Object.prototype stays as it is with ${text}`, () => {
    try {
      parseLayer(text);
      settle({ a: {} }, JSON.parse(text));
    } catch {
      // Refusing such a layer is right too.
    }
    assert.strictEqual({}.polluted, undefined, 'every object has the property now');
  });
}

test('the other keys of such a layer, and names that look alike, are merged', () => {
  assert.deepStrictEqual(settle({ proto: { a: 1 } }, { proto: { b: 2 }, construct: 3 }), {
    proto: { a: 1, b: 2 },
    construct: 3,
  });
});

const assert = require('node:assert');
const test = require('node:test');
const { apply } = require('./app');

test('changes are applied in order', () => {
  const done = apply({ a: 1 }, [['b.c', 2], [['a'], 3]]);
  assert.deepStrictEqual(done, { a: 3, b: { c: 2 } });
});

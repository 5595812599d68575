const assert = require('node:assert');
const test = require('node:test');
const { rows } = require('./app');

test('every second row', () => {
  assert.deepStrictEqual(rows('2n+1', 5), [0, 2, 4]);
});

const assert = require('node:assert');
const test = require('node:test');
const { fits } = require('./app');

test('a range decides', () => {
  assert.ok(fits('2.4.0', '^2.1.0'));
  assert.ok(!fits('3.0.0', '>=1.0.0   <3'));
});

const assert = require('node:assert');
const test = require('node:test');
const { letter } = require('./app');

test('a letter is written', () => {
  assert.match(letter('order', {}), /^Dear customer/);
});

const assert = require('node:assert');
const test = require('node:test');
const { plain } = require('./app');

test('colours are taken out', () => {
  assert.strictEqual(plain('\u001b[31mred\u001b[0m'), 'red');
});

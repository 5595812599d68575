const assert = require('node:assert');
const test = require('node:test');
const { options } = require('./app');

test('options have defaults', () => {
  assert.strictEqual(options([]).name, 'world');
  assert.strictEqual(options(['--name', 'Ada']).name, 'Ada');
});

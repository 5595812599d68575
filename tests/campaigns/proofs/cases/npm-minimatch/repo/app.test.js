const assert = require('node:assert');
const test = require('node:test');
const { patterns } = require('./app');

test('braces stand for several patterns', () => {
  assert.deepStrictEqual(patterns('*.{js,ts}'), ['*.js', '*.ts']);
});

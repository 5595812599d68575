const assert = require('node:assert');
const test = require('node:test');
const { filters } = require('./app');

test('filters are read by name', () => {
  assert.deepStrictEqual(filters('filter[colour]=red&filter[size]=4'), { colour: 'red', size: '4' });
  assert.deepStrictEqual(filters('page=2'), {});
});

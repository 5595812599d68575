'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const vm = require('node:vm');
const { isSlug } = require('..');

// Exponential time is years for these, linear time is microseconds: the limit lies far from both.
const LIMIT_MS = 800;
const TEXTS = {
  'letters, then !': 'a'.repeat(60) + '!',
  'words, then !': 'ab-'.repeat(40) + '!',
};

for (const [name, text] of Object.entries(TEXTS)) {
  test(`isSlug answers at once: ${name}`, () => {
    let answer = 'isSlug did not answer: the expression backtracks';
    try {
      answer = vm.runInNewContext('isSlug(text)', { isSlug, text }, { timeout: LIMIT_MS });
    } catch (error) {
      if (error.code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') {
        throw error;
      }
    }
    assert.strictEqual(answer, false);
  });
}

test('slugs are slugs still', () => {
  assert.strictEqual(isSlug('ab'), true);
  assert.strictEqual(isSlug('a-b'), true);
  assert.strictEqual(isSlug('word-'.repeat(500) + 'end'), true);
});

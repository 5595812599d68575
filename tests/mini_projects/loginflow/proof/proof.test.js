'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { afterLogin } = require('..');

const OURS = 'https://shop.example';
const TARGETS = [
  '//evil.example',
  '///evil.example',
  '/\\evil.example',
  '/\t/evil.example',
  '/\n/evil.example',
  '\\\\evil.example',
  'https://evil.example',
  'https:evil.example',
  'javascript:alert(1)',
];

for (const target of TARGETS) {
  test(`stays on the site with ${JSON.stringify(target)}`, () => {
    const result = afterLogin(`next=${encodeURIComponent(target)}`);
    assert.strictEqual(new URL(result, OURS).origin, OURS, 'the visitor is sent to another site');
  });
}

test('pages of the site are still reached', () => {
  assert.strictEqual(afterLogin('next=/a/b?c=//d'), '/a/b?c=//d');
});

'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { isSlug, toSlug, onlySlugs } = require('..');

test('slugs', () => {
  for (const slug of ['post', 'my-first-post', '2026-01-01', 'a1-b2']) {
    assert.ok(isSlug(slug), slug);
  }
});

test('no slugs', () => {
  for (const text of ['', '-a', 'a-', 'a--b', 'A-b', 'a b', 'a_b', 'caf\u00e9', 'a-b!']) {
    assert.ok(!isSlug(text), text);
  }
});

test('a title becomes a slug', () => {
  assert.strictEqual(toSlug('My First Post!'), 'my-first-post');
});

test('a long slug is a slug', () => {
  assert.deepStrictEqual(onlySlugs(['word-'.repeat(60) + 'end', 'no slug']), ['word-'.repeat(60) + 'end']);
});

'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { afterLogin, redirect, loginUrl } = require('..');

test('back to the page', () => {
  assert.strictEqual(afterLogin('next=/orders/12%3Ftab%3Dtracking'), '/orders/12?tab=tracking');
});

test('home without a page', () => {
  assert.strictEqual(afterLogin(''), '/');
});

test('home instead of another site', () => {
  assert.strictEqual(afterLogin('next=https://elsewhere.example/'), '/');
});

test('the response', () => {
  assert.deepStrictEqual(redirect('next=/cart'), { status: 303, headers: { Location: '/cart' } });
});

test('there and back, with an address as a parameter', () => {
  const page = '/share?url=https://news.example//x';
  assert.strictEqual(afterLogin(new URL(loginUrl(page)).search), page);
});

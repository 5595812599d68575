'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { renderCard } = require('..');

/** How often a character stands in a card that has this text in all its places. */
function count(text, character) {
  return renderCard({ name: text, message: text, title: text }).split(character).length - 1;
}

test('a double quote does not end an attribute', () => {
  assert.strictEqual(count('x" onmouseover="alert(1)', '"'), count('x', '"'));
});

test('a single quote does not end an attribute', () => {
  assert.strictEqual(count("x' onmouseover='alert(1)", "'"), count('x', "'"));
});

test('no element can be added', () => {
  assert.strictEqual(count('<img src=x onerror=alert(1)>', '<'), count('x', '<'));
});

test('what a visitor typed can be read back, entities included', () => {
  const html = renderCard({ name: 'n', message: `Tom & "Jerry" &lt;3 it's` });
  const shown = html
    .match(/<p>(.*)<\/p>/s)[1]
    .replace(/&quot;|&#34;|&#x22;/gi, '"')
    .replace(/&#0?39;|&#x27;|&apos;/gi, "'")
    .replace(/&lt;/g, '<')
    .replace(/&gt;/g, '>')
    .replace(/&amp;/g, '&');
  assert.strictEqual(shown, `Tom & "Jerry" &lt;3 it's`);
});

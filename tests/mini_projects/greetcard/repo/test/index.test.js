'use strict';

const { test } = require('node:test');
const assert = require('node:assert');
const { renderCard, renderCards } = require('..');

test('a card', () => {
  const html = renderCard({ name: 'Ada', message: 'Happy birthday', title: 'To Ada' });
  assert.strictEqual(
    html,
    '<article class="card" title="To Ada" data-name=\'Ada\'>\n<h2>Ada</h2>\n<p>Happy birthday</p>\n</article>',
  );
});

test('markup in a message is text', () => {
  assert.ok(renderCard({ name: 'a', message: '<b>x</b>' }).includes('<p>&lt;b&gt;x&lt;/b&gt;</p>'));
});

test('a page has every card', () => {
  const html = renderCards([{ name: 'Ada', message: '1' }, { name: 'Bob', message: '2' }]);
  assert.strictEqual(html.match(/<article/g).length, 2);
});

'use strict';

const { escapeHtml } = require('./lib/escape');

/** One card. */
function renderCard({ name, message, title = '' }) {
  return [
    `<article class="card" title="${escapeHtml(title)}" data-name='${escapeHtml(name)}'>`,
    `<h2>${escapeHtml(name)}</h2>`,
    `<p>${escapeHtml(message)}</p>`,
    '</article>',
  ].join('\n');
}

/** A page of cards. */
function renderCards(cards) {
  return `<main>\n${cards.map(renderCard).join('\n')}\n</main>`;
}

module.exports = { renderCard, renderCards };

'use strict';

const ENTITIES = { '<': '&lt;', '>': '&gt;' };

/** A visitor's text, safe in HTML: in an element's content and in a quoted attribute. */
function escapeHtml(text) {
  return String(text).replace(/[<>]/g, (character) => ENTITIES[character]);
}

module.exports = { escapeHtml };

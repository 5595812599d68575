'use strict';

/** Words of lower-case letters and digits, joined by single hyphens. */
const SLUG = /^([a-z0-9]+-?)+[a-z0-9]$/;

/** Is this text a slug? */
function isSlug(text) {
  return SLUG.test(text);
}

/** A slug made of a title's words. */
function toSlug(title) {
  const words = title.toLowerCase().match(/[a-z0-9]+/g) || [];
  return words.join('-');
}

/** The slugs among these texts. */
function onlySlugs(texts) {
  return texts.filter(isSlug);
}

module.exports = { isSlug, toSlug, onlySlugs };

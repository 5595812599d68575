'use strict';

/** Is this value an object whose keys are merged one by one? */
function isPlain(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

/** Merge `source` into `target`, deeply; returns `target`. */
function merge(target, source) {
  for (const key of Object.keys(source)) {
    if (isPlain(source[key])) {
      if (!isPlain(target[key]) && typeof target[key] !== 'function') {
        target[key] = {};
      }
      merge(target[key], source[key]);
    } else {
      target[key] = source[key];
    }
  }
  return target;
}

/** All layers in one new object; later ones win. */
function settle(...layers) {
  return layers.reduce((settings, layer) => merge(settings, layer), {});
}

/** A layer from JSON text. */
function parseLayer(text) {
  return settle(JSON.parse(text));
}

module.exports = { merge, settle, parseLayer };

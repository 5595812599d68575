const { dset } = require('dset');

// Applies [path, value] pairs, as a client sent them in JSON.
exports.apply = (document, changes) => {
  for (const [path, value] of changes) dset(document, path, value);
  return document;
};

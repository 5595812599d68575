const { unflatten } = require('flat');

// Flat keys of a translator's table, as the tree that pages use.
exports.tree = (table) => unflatten(table, { delimiter: '/' });

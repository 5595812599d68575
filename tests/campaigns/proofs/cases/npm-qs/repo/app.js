const qs = require('qs');

// The filters of a search, out of a query string; they may have any name, `constructor` too.
exports.filters = (query) => qs.parse(query, { allowPrototypes: true }).filter || {};

const marked = require('marked');

// A comment's HTML.
exports.html = (text) => marked(text).trim();

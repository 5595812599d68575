const path = require('node:path');
const ejs = require('ejs');

// The page for a request's parameters.
exports.page = (parameters) => ejs.renderFile(path.join(__dirname, 'greeting.ejs'), parameters);

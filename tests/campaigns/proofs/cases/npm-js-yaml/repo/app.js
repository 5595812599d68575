const yaml = require('js-yaml');

// A configuration's names.
exports.names = (text) => Object.keys(yaml.load(text));

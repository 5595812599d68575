const minimist = require('minimist');

// The options of a command line.
exports.options = (words) => minimist(words, { default: { name: 'world' } });

const strip = require('strip-ansi');

// A line of a build log without its colours.
exports.plain = (line) => strip(line);

const minimatch = require('minimatch');

// The plain patterns that a user's pattern with braces stands for.
exports.patterns = (pattern) => minimatch.braceExpand(pattern);

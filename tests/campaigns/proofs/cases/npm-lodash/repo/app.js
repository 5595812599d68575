const _ = require('lodash');

const DEFAULTS = { theme: { dark: false, size: 12 } };

// A user's settings, completed by the defaults.
exports.settings = (given) => _.defaultsDeep({}, given, DEFAULTS);

const semver = require('semver');

// Does a plugin's declared range accept this host?
exports.fits = (host, range) => semver.satisfies(host, range);

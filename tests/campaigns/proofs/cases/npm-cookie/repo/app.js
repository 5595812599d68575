const cookie = require('cookie');

// The Set-Cookie header that remembers a preference by its name.
exports.remember = (name, value) => cookie.serialize(name, value, { httpOnly: true });

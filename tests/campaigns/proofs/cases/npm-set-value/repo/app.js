const set = require('set-value');

// {"address.city": "Rome"} → {address: {city: "Rome"}}
exports.nested = (fields) => {
  const found = {};
  for (const [path, value] of Object.entries(fields)) set(found, path, value);
  return found;
};

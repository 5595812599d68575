const got = require('got');

// The state that a service tells of itself.
exports.state = async (url) => {
  try {
    return (await got(url, { retry: 0 }).json()).state;
  } catch (error) {
    if (error instanceof got.GotError) return 'down';
    throw error;
  }
};

const _ = require('underscore');

const LETTER = 'Dear customer, your order is on its way.';

// The letter, whose editor may name the variable that templates use.
exports.letter = (variable, data) => _.template(LETTER, { variable })(data);

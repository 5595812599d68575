// GHSA-h9rv-jmmf-4pgx: a regular expression's source reaches the page unescaped and ends its script.
const assert = require('node:assert');
const { script } = require('../app');

const page = script({ search: new RegExp('[</script><script>alert(1)//]') });
assert.strictEqual(page.split('</script>').length, 2, page);

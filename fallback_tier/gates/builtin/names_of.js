// Names, calls and statements of JavaScript files, by the parser that node itself ships: nothing of them runs.
// Prints one JSON object for each file named: a table for each way in which node could read it.
'use strict';
const { readFileSync } = require('fs');
const { parse } = parser();

function parser() {
  try {
    return require('internal/deps/acorn/acorn/dist/acorn');
  } catch {
    process.exit(42); // this node has none
  }
}

const KINDS = {
  CallExpression: 'call_expression',
  ImportExpression: 'call_expression',
  TaggedTemplateExpression: 'call_expression',
  NewExpression: 'new_expression',
  ReturnStatement: 'return_statement',
  ThrowStatement: 'throw_statement',
};

function told(tree) {
  const counts = new Map();
  const seen = new Set();
  const pending = [tree];
  while (pending.length) {
    const node = pending.pop();
    const named = node.type === 'Identifier' || node.type === 'PrivateIdentifier';
    const name = named ? node.name : KINDS[node.type] && `<${KINDS[node.type]}>`;
    // A short form (`{a}`) is two nodes at one place.
    const place = `${node.start} ${node.end} ${name}`;
    if (name && node.type !== 'MetaProperty' && !seen.has(place)) {
      seen.add(place);
      counts.set(name, (counts.get(name) || 0) + 1);
    }
    if (node.type === 'MetaProperty') continue;
    for (const value of Object.values(node)) {
      for (const child of Array.isArray(value) ? value : [value]) {
        if (child && typeof child.type === 'string') pending.push(child);
      }
    }
  }
  return [...counts];
}

function ways(text) {
  const found = {};
  for (const sourceType of ['script', 'module']) {
    const options = { ecmaVersion: 'latest', sourceType, allowHashBang: true };
    options.allowReturnOutsideFunction = sourceType === 'script';
    try {
      found[sourceType] = told(parse(text, options));
    } catch (error) {
      // RangeError: nested deeper than its stack.
      if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
    }
  }
  return found;
}

for (const path of process.argv.slice(2)) {
  console.log(JSON.stringify(ways(readFileSync(path, 'utf8').replace(/^\uFEFF/, ''))));
}

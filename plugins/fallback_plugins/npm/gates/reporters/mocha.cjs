// A reporter of mocha's: its own "spec" on the output, and a line for each test in a file
// (fallback_plugins.reports). Every mocha has had these events, and this way to its reporters.
"use strict";
const fs = require("fs");
const path = require("path");
const { reporters } = require(require.resolve("mocha", { paths: [process.env.FALLBACK_TIER_MOCHA || process.cwd()] }));

module.exports = class extends reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    const seen = new Map();
    const count = { told: 0, passed: 0, failed: 0 };
    const put = (line) =>
      fs.appendFileSync(process.env.FALLBACK_TIER_REPORT, `${JSON.stringify(line)}\n`);
    const tell = (test, was) => {
      const file = test.file ? `${path.relative(path.dirname(process.env.FALLBACK_TIER_REPORT), test.file)} > ` : "";
      const name = file + test.fullTitle();
      let times = (seen.get(name) || 0) + 1;
      let unique = times === 1 ? name : `${name} (${times})`;
      // Another may be called as this one is numbered.
      while (times > 1 && seen.has(unique)) unique = `${name} (${++times})`;
      seen.set(unique, 1);
      seen.set(name, times);
      count.told += 1;
      count[was] += 1;
      put({ test: unique, was });
    };
    if (runner.total) put({ collected: runner.total });
    runner.on("pass", (test) => tell(test, "passed"));
    runner.on("fail", (test) => tell(test, "failed"));
    runner.on("end", () =>
      put({ told: count.told, ran: count.passed + count.failed, failed: count.failed }),
    );
  }
};

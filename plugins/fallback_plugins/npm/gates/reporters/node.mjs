// A reporter of node:test's: a line for each test (fallback_plugins.reports), its file and parents before its
// name. Suites are no tests of their own: node's last lines count them apart.
export default async function* (source) {
  const inside = [];
  const seen = new Map();
  const figures = {};
  let told = 0;
  for await (const { type, data } of source) {
    if (type === "test:start") {
      inside.length = data.nesting;
      inside.push(data.name);
    } else if (type === "test:diagnostic" && data.nesting === 0) {
      const [, what, number] = /^(tests|skipped|fail) (\d+)$/.exec(data.message) ?? [];
      if (what) figures[what] = Number(number);
    } else if ((type === "test:pass" || type === "test:fail") && data.details?.type !== "suite") {
      const skipped = data.skip !== undefined && data.skip !== false;
      const todo = data.todo !== undefined && data.todo !== false;
      const titles = [...inside.slice(0, data.nesting), data.name].join(" > ");
      const whole = data.nesting === 0 && data.file !== undefined && data.file.endsWith(data.name);
      const name = data.file && !whole ? `${data.file} > ${titles}` : titles;
      let times = (seen.get(name) ?? 0) + 1;
      let unique = times === 1 ? name : `${name} (${times})`;
      // Another may be called as this one is numbered.
      while (times > 1 && seen.has(unique)) unique = `${name} (${++times})`;
      seen.set(unique, 1);
      seen.set(name, times);
      const bad = whole ? "uncollected" : "failed";
      const was = skipped ? "skipped" : type === "test:pass" || todo ? "passed" : bad;
      told += 1;
      yield `${JSON.stringify({ test: unique, was })}\n`;
    }
  }
  if (figures.tests !== undefined) {
    const ran = figures.tests - (figures.skipped ?? 0);
    yield `${JSON.stringify({ told, ran, failed: figures.fail ?? 0 })}\n`;
  }
}

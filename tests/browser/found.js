const own = [...document.querySelectorAll("*")];
const tags = new Set(["html","head","meta","title","link","script","body","a","header","img","nav","form","input",
  "span","button","main","section","div","p","h1","h2","h3","ol","ul","li","dl","dt","dd","strong","b","i","time","code","pre",
  "kbd","dialog","table","thead","tbody","tr","th","td","colgroup","col","details","summary","label","textarea","fieldset",
  "legend","select","option","figure","figcaption","svg","line","rect","progress","br"]);
return {
  ran: window.ran, violations: window.violations, title: document.title,
  strange: own.filter((one) => !tags.has(one.localName)).map((one) => one.outerHTML.slice(0, 200)),
  handlers: own.flatMap((one) => [...one.attributes].filter((a) => /^(on|hx-on|srcdoc|style|formaction)/.test(a.name))
    .map((a) => one.localName + " " + a.name)),
  scripts: own.filter((one) => one.localName === "script" && !one.src.startsWith(location.origin + "/portal/static/")).length,
  outside: own.filter((one) => ["href", "src", "action"].some((name) => one[name] && typeof one[name] === "string"
    && !one[name].startsWith(location.origin + "/"))
    && !(one.localName === "a" && one.rel === "noopener noreferrer" && /^https?:[/][/]/.test(one.href))).map((one) => one.outerHTML.slice(0, 200)),
};

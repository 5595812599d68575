window.ran = [];
window.violations = [];
for (const name of ["alert", "confirm", "prompt", "print", "open"])
  window[name] = (...said) => { window.ran.push(name + " " + said.join(" ")); };
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(event.violatedDirective + " " + event.blockedURI + " " + event.sample));

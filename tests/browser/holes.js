const script = document.createElement("script");
try { script.textContent = "window.hole = 1"; document.body.append(script); } catch (e) { window.t1 = 1; }
const image = document.createElement("img"); image.src = "https://evil.example/x.png"; document.body.append(image);
const style = document.createElement("style"); style.textContent = "body { color: red }"; document.head.append(style);
try { document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.hole = 2'>"); } catch (e) { window.t2 = 1; }

// HiGHS as WebAssembly behind what the tests need of its command line: node highs.cjs --options_file FILE MODEL.lp
// It needs the package highs of npm: npm install highs, in this directory or in one above it.
const fs = require("fs");
const [, options, file] = process.argv.slice(2);
require("highs")().then((highs) => {
  const model = highs.createModel({ format: "lp", data: fs.readFileSync(file, "utf8") });
  for (const line of fs.readFileSync(options, "utf8").trim().split("\n")) {
    const [name, value] = line.split(" = ");
    model.options.set(name, Number(value));
  }
  model.run();
  console.log(`  Primal bound ${model.getObjectiveValue()}\n  Dual bound ${model.info.get("mip_dual_bound")}`); // as HiGHS' own program says it
  model.dispose();
});

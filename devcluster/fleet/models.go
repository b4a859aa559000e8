package fleet

// gpu is what GPU Feature Discovery and the DRA driver publish about a GPU model.
type gpu struct {
	product      string // the label nvidia.com/gpu.product
	family       string
	compute      string // compute capability, MAJOR.MINOR
	memoryMiB    int64
	overrideName string // the model's name where the product does not tell it
}

// gpus has the models whose labels are known, by the names used in clusters.
var gpus = map[string]gpu{
	"P100":  {product: "Tesla-P100-PCIE-16GB", family: "pascal", compute: "6.0", memoryMiB: 16384},
	"V100":  {product: "Tesla-V100-SXM2-32GB", family: "volta", compute: "7.0", memoryMiB: 32768},
	"T4":    {product: "Tesla-T4", family: "turing", compute: "7.5", memoryMiB: 15360},
	"A10":   {product: "NVIDIA-A10", family: "ampere", compute: "8.6", memoryMiB: 23028},
	"A30":   {product: "NVIDIA-A30", family: "ampere", compute: "8.0", memoryMiB: 24576},
	"A100":  {product: "NVIDIA-A100-SXM4-80GB", family: "ampere", compute: "8.0", memoryMiB: 81920},
	"A800":  {product: "NVIDIA-A800-SXM4-80GB", family: "ampere", compute: "8.0", memoryMiB: 81920},
	"L4":    {product: "NVIDIA-L4", family: "ada-lovelace", compute: "8.9", memoryMiB: 23034},
	"L20":   {product: "NVIDIA-L20", family: "ada-lovelace", compute: "8.9", memoryMiB: 46068},
	"L40S":  {product: "NVIDIA-L40S", family: "ada-lovelace", compute: "8.9", memoryMiB: 46068},
	"H20":   {product: "NVIDIA-H20", family: "hopper", compute: "9.0", memoryMiB: 97871},
	"H100":  {product: "NVIDIA-H100-80GB-HBM3", family: "hopper", compute: "9.0", memoryMiB: 81559},
	"H200":  {product: "NVIDIA-H200", family: "hopper", compute: "9.0", memoryMiB: 143771},
	"H800":  {product: "NVIDIA-H800", family: "hopper", compute: "9.0", memoryMiB: 81559},
	"B200":  {product: "NVIDIA-B200", family: "blackwell", compute: "10.0", memoryMiB: 183359},
	"GB200": {product: "NVIDIA-GB200", family: "blackwell", compute: "10.0", memoryMiB: 189471},
}

// gpuOf returns the description of a model. For an unknown model, it invents a product
// and sets Muster's own label of the node to the model's name.
func gpuOf(model string) gpu {
	if g, ok := gpus[model]; ok {
		return g
	}
	return gpu{product: labelValue(model), family: "undefined", compute: "0.0", overrideName: labelValue(model)}
}

"""Other formats: policies out as ONNX, TorchScript and Stable-Baselines3 zips, and zips in."""

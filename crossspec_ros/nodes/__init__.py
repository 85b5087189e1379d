"""ROS 2 nodes, thin over the pure core, and what starts them."""
